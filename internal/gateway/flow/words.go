package flow

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"
)

// family is a set of groups of verbs with a similar meaning, such as sending. Text can ask for a tool's action with any
// verb of the tool's family.
type family uint16

const (
	sending family = 1 << iota
	paying
	creating
	deleting
	changing
	sharing
	running
	fetching
)

// verbs lists the stems of verbs, for each family, in English and in other languages. A stem of four letters or more
// matches every word that is a form of the verb, and a shorter stem matches only itself. In languages without spaces, a
// verb matches a sequence of characters. The other languages are German, Spanish, French, Italian, Portuguese, Dutch,
// Japanese and Chinese.
var verbs = map[family]struct{ english, others string }{
	sending: {`push send sent mail mailed mailing email forward reply respond post message notify notifi publish tell write wrote
deliver submit contact dispatch transmit ping broadcast invite share report upload exfiltrat leak`, `
schick send sende gesendet senden verschick versend weiterleit antwort schreib benachricht mitteil teile melde übermitt einlad
envia envie envía envíe enviar manda mande mándale reenvi respond escrib publi notifi comparte comunic invita
envoy transmet transfér transfere répond répon écri ecri partage publie notifie invite
invia inviare manda inoltra rispond scriv condivid pubblic spedi
encaminh respond escrev compartilh mande avise
stuur verstuur zend verzend doorstuur beantwoord schrijf deel meld
送 返信 転送 連絡 投稿 共有 通知 書いて 知らせ 伝え 发 寄 转发 回复 通知 分享 發 轉`},
	paying: {`spend pay paid payment payments paying transfer wire wired remit send sent transact refund buy bought purchas donat deposit
settle reimburs charge credit debit order withdraw invest subscri`, `
zahl bezahl überweis uberweis transfer schick sende spend kauf begleich bestell erstatt einzahl
paga pague pagar págale transf transfier envía envíe envia envie compra gira abona deposit dona ingres reembols
paye payer payez verse virement virer vire achet transfér transfere envoy règle regle rembours
paga versa bonific trasfer invia acquist compra rimbors
pague pagar transfira transfer deposit envie compr
betaal overmaak maak koop stuur stort
支払 払 送金 振込 振り込 購入 返金 送 付款 支付 转账 轉賬 汇款 购买 打款 打钱`},
	creating: {`push create creating make made add added append write wrote schedul book booked register set save insert open plan
reserv invite draft compose put store upload generat record enroll arrange organi setup build start publish`, `
erstell anleg anlege lege füge hinzu schreib trag vereinbar plane buche speicher reservier neue öffne erzeug leg einricht mache
crea cree crear añad anad agreg escrib program reserv agend guard nuevo nueva haz registr invit organiz
crée créer creer ajout écri ecri planif réserv reserv enregist nouve organis prévo prevo fais
aggiung scriv programm prenot salva nuovo nuova organizz registra
adicion escrev agende salve marque novo nova organize
maak toevoeg voeg schrijf plan boek bewaar reserveer nieuw
作成 作って 作る 追加 登録 予約 保存 書 新規 招待 创建 建立 新建 添加 加入 安排 预订 保存 写 創建 預訂`},
	deleting: {`exclude eliminate retire delete deletion deleting remove removing removal cancel drop erase destroy clear purge wipe unsubscri revoke close
archiv terminat cancellation termination archival uninstall trash discard kill disable reset shred prune clean detach unlink rm`, `
lösch losch entfern storn absag sage lös beseit vernicht widerruf kündig kundig schließ schliess leere
elimin borra borre borrar quita suprim cancel anul destru revoc cierr vacía vacia
supprim efface annul enlev détrui detrui retire révoq revoq ferme vide
cancell rimuov annull distrugg revoc chiud svuot
exclu apag remov destru revog fech
verwijder wis annuleer schrap vernietig intrek sluit
削除 消 取り消 キャンセル 破棄 抹消 删除 刪除 取消 移除 清空 销毁 撤销`},
	changing: {`substitute manage patch transition upgrade lock unlock update updating change changing modify edit reschedul move moving rename
set replac reset adjust switch alter put patch correct assign revise overwrit configur enable postpone shift turn
convert merge approve close reopen mark`, `
änder ander aktualis verschieb setz ersetz bearbeit stell umbenenn anpass verleg wechsl
cambi actualiz modific mueve mover reemplaz edita ajust pon ponga reprogram aplaz renombr
chang modifi mets mettre mettez déplac deplac remplac règle actualis report renomm
cambia modific aggiorn sposta sostitu impost rinomin
altere mude atualiz substitu mova defina
wijzig verander verplaats vervang zet pas hernoem
変更 更新 修正 移動 編集 置き換 設定 変え 更改 修改 更新 移动 替换 设置 改 調整`},
	sharing: {`share sharing grant give gave invite allow permit add added send expose publish transfer assign`, `
teil freigeb freigab gib gebt gewähr gewahr einlad lade zugriff zugang füge hinzu
compart comparta otorg conced invit permi acceso añad agreg dale dar
partag accord donne invit autoris accès acces ajout
condivid conced invita permett accesso aggiung
compartilh conced convid permit acesso adicion
deel geef nodig toegang verleen voeg
共有 招待 許可 権限 追加 与え 分享 共享 授权 授予 邀请 添加`},
	running: {`restart reboot rerun rollout rollback redeploy scale undo run execut exec launch call start eval install invoke
trigger perform apply command deploy use enter paste`, `
ausführ ausfuhr führ fuhr starte start aufruf installier
ejecut lanza inicia instala llama
exécut execut lance lancez démarr demarr install
esegu avvia lancia installa
execut rode inicie instale
voer start draai installeer
実行 起動 インストール 走らせ 执行 运行 启动 安装 執行 運行`},
	fetching: {`consult visit open opening go click fetch brows read see check look download get navigat follow access load view request call
retriev query lookup ping crawl scrap`, `
besuch öffne offne klick lies lade ruf abruf geh folge hole schau prüf
visit abre abra abrir clic haz descarg lee consult sigue accede ve
ouvr cliqu consult télécharg telecharg suiv va allez lis lisez
apri clicca scaric leggi segui vai
abra acesse clique baixe leia siga visite
bezoek open klik lees haal volg ga
開 訪問 アクセス クリック 見て 読 取得 ダウンロード 打开 访问 点击 查看 下载 读取 開啟 訪問`},
}

// verbTable holds the verbs of each family, ready for lookup.
type verbTable struct {
	exact  map[string]stem
	stems  map[string]stem // stems of at least four letters
	chars  map[rune][]charVerb
	longer int // length of the longest stem
	// starts has a bit for the first four bytes of each stem and each short verb, so that most words need no lookup in
	// a map.
	starts [1 << 10]uint64
	// deletions is like starts, but contains only verbs of the family deleting.
	deletions [1 << 10]uint64
}

// stem contains the families of the verbs that have a certain stem, in English and in other languages.
type stem struct{ english, others family }

// startBit returns the bit for the first four bytes of a token.
func startBit(token []byte) uint32 {
	var start uint32
	if len(token) >= 4 {
		start = binary.LittleEndian.Uint32(token)
	} else {
		for _, c := range token {
			start = start<<8 | uint32(c)
		}
	}
	return start * 2654435761 >> 16
}

type charVerb struct {
	word   string
	family family
}

var table = func() *verbTable {
	t := &verbTable{exact: map[string]stem{}, stems: map[string]stem{}, chars: map[rune][]charVerb{}}
	add := func(f family, list string, english bool) {
		for word := range strings.FieldsSeq(list) {
			w := wordsOf([]byte(word)) // normalized like the texts, without accents
			if w.len() == 0 {
				continue
			}
			first, _ := utf8.DecodeRune(w.text)
			switch {
			case alone(first):
				t.chars[first] = append(t.chars[first], charVerb{string(w.text), f})
			default:
				list := t.exact
				if len(w.text) >= 4 {
					list = t.stems
					t.longer = max(t.longer, len(w.text))
				}
				e := list[string(w.text)]
				if english {
					e.english |= f
				} else {
					e.others |= f
				}
				list[string(w.text)] = e
			}
			bit := startBit(w.text)
			t.starts[bit>>6] |= 1 << (bit & 63)
			if f == deleting {
				t.deletions[bit>>6] |= 1 << (bit & 63)
			}
		}
	}
	for f, list := range verbs {
		add(f, list.english, true)
		add(f, list.others, false)
	}
	return t
}()

// of returns the families of the verbs whose stem begins the given token. It also tries the token without its first two
// letters, for German participles such as "geschickt".
func (t *verbTable) of(token []byte) family {
	verb := t.begins(token)
	if isParticiple(token) {
		verb.others |= t.begins(token[2:]).others
	}
	return verb.english | verb.others
}

func isParticiple(token []byte) bool { return len(token) >= 7 && token[0] == 'g' && token[1] == 'e' }

// begins returns the families of the verbs whose stem begins the given token.
func (t *verbTable) begins(token []byte) (verb stem) {
	if bit := startBit(token); t.starts[bit>>6]&(1<<(bit&63)) == 0 {
		return verb
	}
	if len(token) < 4 {
		return t.exact[string(token)]
	}
	for n := 4; n <= min(len(token), t.longer); n++ {
		if e, ok := t.stems[string(token[:n])]; ok {
			if inflected(token, n, true) {
				verb.english |= e.english
			}
			if inflected(token, n, false) {
				verb.others |= e.others
			}
		}
	}
	return verb
}

// maxEnding is the maximum length of the ending of a verb without an object such as "-selo". Longer endings belong to
// compounds such as "Programmheften".
const maxEnding = 5

// inflected reports whether a word is a form of the verb whose stem is the word's first n letters. Compound words and
// nouns such as "scheduler", "registry", "deployment" and "accessible" are not.
func inflected(word []byte, n int, english bool) bool {
	ends := func(with string) bool { return bytes.HasSuffix(word[n:], []byte(with)) }
	switch {
	case len(word) == n:
		return true
	case len(word)-n > n+1, len(word)-n > maxEnding && !ends("lo") && !ends("la") && !ends("me") && !ends("le"), ends("y"), ends("ble"), ends("ion"):
		return false
	}
	return !english || (ends("e") || ends("d") || ends("g") || ends("s")) && !ends("rs") && !ends("ments")
}

// deletes reports whether a token can start a verb of the family deleting.
func (t *verbTable) deletes(token []byte) bool {
	if token[0] >= utf8.RuneSelf && aloneIn(token) {
		r, _ := utf8.DecodeRune(token)
		return slices.ContainsFunc(t.chars[r], func(v charVerb) bool { return v.family == deleting })
	}
	if isParticiple(token) && t.deletes(token[2:]) {
		return true
	}
	bit := startBit(token)
	return t.deletions[bit>>6]&(1<<(bit&63)) != 0 && t.of(token)&deleting != 0
}

// fieldWords contains common names of fields and parts of addresses. They are not treated as words of an unknown
// language, so a list of fields is not mistaken for a text.
var fieldWords = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(`id ids name names type status state key keys value values url urls https http www com org net title
description label labels list row rows page file files folder date time created modified size user users email phone count total limit found
results result query version namespace ref class href src img div span td tr true false null none html body li ul ol br nbsp amp style width
height schema column columns table index import def func function return const var let struct package public static void self if else issue
issues success successfully code data`) {
		m[w] = true
	}
	return m
}()

// functionWords contains the most frequent short words of the languages in the verb table. A text with many words but
// hardly any of these is in a language that the table does not cover. english contains the words that are only in the
// English list. foreignWords contains the words that are not in it.
var functionWords, english, foreignWords = func() (all, en, foreign map[string]bool) {
	all, en, foreign = map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, list := range []string{
		`the of and to in is for on with this that it you please be at from by an as are not your my me we will if`,
		`der die das und zu den mit ein eine auf an bitte ist im von für sie ich dem des es als nicht du dein mein wir`,
		`el la los las un una por favor para con en es de que se su al lo del mi tu y`,
		`le les des une est pour avec dans sur et je vous votre au aux que ce il mon`,
		`il gli una per con di che è nel sul e mio tuo da`,
		`o os um uma para com em que no na do da por seu`,
		`het een van en voor met op te dat is niet jouw mijn`,
	} {
		for w := range strings.FieldsSeq(list) {
			w := string(wordsOf([]byte(w)).text)
			foreign[w] = foreign[w] || i > 0 && !all[w]
			all[w] = true
			en[w] = i == 0
		}
	}
	return all, en, foreign
}()
